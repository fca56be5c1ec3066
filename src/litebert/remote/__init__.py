"""Files and folders in stores such as `s3://bucket/folder`, through the library `fsspec`, which
only stores.py speaks. Nothing is imported and no connection is opened before a URL is used.

A file is there whole or not at all, so whoever writes several writes the index last.
"""
