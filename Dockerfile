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
COPY --from=model . /model
ENV PYTHONDONTWRITEBYTECODE=1
USER 10001
EXPOSE 8000
HEALTHCHECK --start-period=30s --interval=15s --timeout=5s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["litebert", "serve", "model=/model", "--host", "0.0.0.0"]
