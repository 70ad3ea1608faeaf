# One image for every service: `docker build -t ternmq .`
#
# BASE is any image with Python 3.11 or newer. A folder `wheels/` beside this file may hold the
# dependencies' wheels; with WHEELS=only nothing else is asked for, so the build needs no network.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ARG WHEELS=first
WORKDIR /src
RUN python3 -m venv /opt/ternmq \
    && if [ "$WHEELS" = only ]; then /opt/ternmq/bin/pip config --site set global.no-index true; fi
ENV PATH=/opt/ternmq/bin:$PATH PIP_FIND_LINKS=/src/wheels \
    PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# What we depend on is a layer of its own: a change of our code does not install it again.
COPY pyproject.toml wheel[s] wheels/
# The extra `security` is for `ternmq cert`, `metrics` for --metrics-port.
RUN python -c 'import tomllib; \
told = tomllib.load(open("wheels/pyproject.toml", "rb"))["project"]; \
extras = told["optional-dependencies"]; \
print(*told["dependencies"], *extras["metrics"], *extras["security"], sep="\n")' \
    > needed && pip install --requirement needed
COPY . .
RUN pip install --no-deps .

FROM ${BASE}
RUN groupadd --system --gid 10001 ternmq \
    && useradd --system --uid 10001 --gid ternmq --home-dir /data --shell /usr/sbin/nologin ternmq \
    && install -d -o ternmq -g ternmq /data
COPY --from=build /opt/ternmq /opt/ternmq
ENV PATH=/opt/ternmq/bin:$PATH PYTHONUNBUFFERED=1
# As a number, so that whoever demands a user that is not root can see that it is none.
USER 10001:10001
WORKDIR /data
VOLUME /data
STOPSIGNAL SIGTERM
# Whoever runs another service than `dev`, or on another port, says so in TERNMQ_HEALTH.
ENV TERNMQ_HEALTH=127.0.0.1:9876
# No shell in between: it would be ended at the time-out, and what it began would run on. The check
# gives up after 3 s by itself, as engines before 23 end none; the rest of 15 s is for the start of
# Python where processors are busy. Failures count only after a start that is long enough for a log
# to be recovered.
HEALTHCHECK --interval=10s --timeout=15s --start-period=120s --retries=3 \
    CMD ["ternmq", "health"]
ENTRYPOINT ["ternmq"]
CMD ["dev", "--listen", "0.0.0.0", "--insecure", "--data", "/data"]
