# One image for coordinator and optimizer:
#   docker build --tag amoro .
#   docker run amoro up --host 0.0.0.0 ...
#   docker run amoro optimizer run --address HOST:1261 ...
FROM python:3.11-slim-bookworm AS build

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY amoro_core amoro_core
COPY amoro_optimizer amoro_optimizer
COPY amoro_cli amoro_cli
# What pyiceberg needs for the catalogs that it does not bring along; more by --build-arg.
ARG EXTRAS=glue,hive,sql-postgres
RUN python -m venv /opt/amoro \
    && /opt/amoro/bin/pip install --no-cache-dir . "pyiceberg[${EXTRAS}]"

FROM python:3.11-slim-bookworm

COPY --from=build /opt/amoro /opt/amoro
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data amoro \
    && install --directory --owner=amoro --group=amoro --mode=0700 /data
ENV PATH=/opt/amoro/bin:$PATH \
    AMORO_HOME=/data
USER 10001:10001
VOLUME /data
# gRPC
EXPOSE 1261
# An optimizer has no address to ask: it counts as healthy as long as it runs.
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s CMD ["python", "-m", "amoro_core.bootstrap.health"]
ENTRYPOINT ["amoro"]
CMD ["up"]
