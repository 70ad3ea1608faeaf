# One image for every service: `docker build -t ternmq .`
#
# BASE is any image with Python 3.11 or newer. A folder `wheels/` beside this file may hold the
# dependencies' wheels; with WHEELS=only nothing else is asked for, so the build needs no network.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ARG WHEELS=first
WORKDIR /src
COPY . .
RUN mkdir -p wheels && python3 -m venv /opt/ternmq \
    && if [ "$WHEELS" = only ]; then offline=--no-index; fi \
    && /opt/ternmq/bin/pip install --no-cache-dir --disable-pip-version-check \
       ${offline:-} --find-links wheels .

FROM ${BASE}
COPY --from=build /opt/ternmq /opt/ternmq
RUN groupadd --system --gid 10001 ternmq \
    && useradd --system --uid 10001 --gid ternmq --home-dir /data --shell /usr/sbin/nologin ternmq \
    && install -d -o ternmq -g ternmq /data
ENV PATH=/opt/ternmq/bin:$PATH PYTHONUNBUFFERED=1
USER ternmq
WORKDIR /data
VOLUME /data
STOPSIGNAL SIGTERM
# Whoever runs another service than `dev`, or on another port, says so in TERNMQ_HEALTH.
ENV TERNMQ_HEALTH=127.0.0.1:9876
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ternmq health "$TERNMQ_HEALTH"
ENTRYPOINT ["ternmq"]
CMD ["dev", "--listen", "0.0.0.0", "--data", "/data"]
