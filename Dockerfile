# A service of one model: its folder and what answers over HTTP; PyTorch and the compiler stay outside. The kernels
# are compiled for every kind of x86-64 processor (or of ARM, on ARM), and the service loads the best for its own.
# docs/serving.md says which folder to ship.
#
#     litebert export runs/reviews --out small
#     docker build --build-context model=small -t reviews .
#     docker run --rm -p 127.0.0.1:8000:8000 -e LITEBERT_KEY=... --read-only reviews

FROM python:3.13-slim AS build
ARG PACKAGES=""
# onnxruntime for a folder of `litebert export --format onnx`: --build-arg PACKAGES=onnxruntime
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE constraints.txt ./
COPY src src
RUN pip install --no-cache-dir --prefix /installed -c constraints.txt '.[serve]' $PACKAGES

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
