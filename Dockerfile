# syntax=docker/dockerfile:1
# One image for every process of Tidewheel: `docker run tidewheel scheduler`, `… worker --pool default=8`, `… projector`, `… api`.

FROM python:3.12-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/tidewheel
WORKDIR /src
COPY . .
RUN /opt/tidewheel/bin/pip install . && /opt/tidewheel/bin/pip uninstall --yes pip

FROM python:3.12-slim
LABEL org.opencontainers.image.title="Tidewheel" org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --create-home tidewheel
COPY --from=build /opt/tidewheel /opt/tidewheel
ENV PATH=/opt/tidewheel/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER tidewheel
WORKDIR /home/tidewheel
# The processes end in order on TERM: a scheduler gives its shards up, a worker finishes or hands back what it holds.
STOPSIGNAL SIGTERM
ENTRYPOINT ["tidewheel"]
CMD ["--help"]
