# A service of one exported model: an engine, the model and what answers over HTTP; PyTorch stays outside.
#
#     litebert export runs/reviews --out exported
#     docker build --build-context model=exported -t reviews .
#     docker run --rm -p 127.0.0.1:8000:8000 --read-only reviews

FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE constraints.txt ./
COPY src src
# litebert itself without its dependencies, which are those of training; then what serving imports.
RUN pip install --no-cache-dir --no-compile --prefix /installed --no-deps . \
 && pip install --no-cache-dir --no-compile --prefix /installed -c constraints.txt \
    numpy tokenizers sentencepiece sentencex protobuf safetensors filelock rich tyro fastapi uvicorn httptools uvloop onnxruntime

FROM python:3.13-slim
COPY --from=build /installed /usr/local
# Readable by the user below, whatever umask it was exported with.
COPY --from=model --chmod=755 . /model
ENV PYTHONDONTWRITEBYTECODE=1
USER 10001
EXPOSE 8000
# The port is that of the option --port, if the container was given one.
HEALTHCHECK --start-period=30s --interval=15s --timeout=5s \
    CMD ["python", "-c", "import re; from urllib.request import urlopen; port = re.search('--port[=\\0]([0-9]+)', open('/proc/1/cmdline').read()); urlopen(f'http://127.0.0.1:{port[1] if port else 8000}/health', timeout=4)"]
ENTRYPOINT ["litebert", "serve", "model=/model", "--host", "0.0.0.0"]
