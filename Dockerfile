# The command line and the server on a CPU, as a user without rights. Build: docker build --tag megalabel .
# torch's build for CPUs comes from an index of its own: docker build --build-arg PIP_EXTRA_INDEX_URL=... --tag megalabel .
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m pip install --no-cache-dir build==1.6.1 && python -m build --wheel --outdir /dist

FROM python:3.11-slim-bookworm
ARG PIP_EXTRA_INDEX_URL
COPY constraints.txt /opt/
COPY --from=build /dist /opt/dist
RUN python -m pip install --no-cache-dir --constraint /opt/constraints.txt \
    --find-links /opt/dist "megalabel[hf,parquet,serve]" \
    && useradd --create-home --uid 10001 megalabel
USER 10001
WORKDIR /work
ENV HF_HUB_OFFLINE=1
EXPOSE 8000
ENTRYPOINT ["megalabel"]
CMD ["--help"]
