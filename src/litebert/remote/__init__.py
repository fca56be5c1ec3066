"""Files and folders in stores such as `s3://bucket/folder`, through the library `fsspec`.

    names.py    which names are URLs, and how messages show them
    stores.py   the only module that speaks `fsspec`: look, list, read, write, delete, with retries
    reading.py  a file here or in a store, opened for reading

Nothing is imported and no connection is opened before a URL is used. A store is a place for whole
files. A file is there whole or not at all, so whoever writes several writes the index last.
"""
