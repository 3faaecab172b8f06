# One builder, three images: docker build --target gateway (dispatcher, testkit).
# The tag names the Python with which the tests run. Where you build for production, pin its digest: PYTHON=python@sha256:...
ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS builder
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements.lock requirements-dev.lock ./
# pip stays outside of what is handed on, and so does what builds the package, which the development lock pins
RUN python -m venv --without-pip /opt/relay \
    && python -m pip --python /opt/relay/bin/python install --require-hashes --no-deps -r requirements.lock
RUN sed -n '/^setuptools==/,/[^\\]$/p' requirements-dev.lock > build.lock \
    && python -m pip install --require-hashes --no-deps -r build.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir wheels . \
    && python -m pip --python /opt/relay/bin/python install --no-deps --no-index wheels/relay-*.whl
COPY ops/docker/healthy.py /opt/relay/healthy.py

FROM ${PYTHON} AS runtime
RUN groupadd --gid 10001 relay \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/relay --shell /usr/sbin/nologin relay \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/relay /keys
COPY --from=builder /opt/relay /opt/relay
ENV PATH=/opt/relay/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /var/lib/relay
# a number, so that whoever starts the container can see that it is not root
USER 10001:10001
ENTRYPOINT ["relay"]

FROM runtime AS gateway
ENV RELAY_BIND=0.0.0.0:8080
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python", "-I", "/opt/relay/healthy.py", "8080", "/healthz"]
CMD ["gateway"]

FROM runtime AS dispatcher
ENV RELAY_METRICS_BIND=0.0.0.0:9091
EXPOSE 9091
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python", "-I", "/opt/relay/healthy.py", "9091", "/healthz"]
CMD ["dispatcher"]

FROM runtime AS testkit
ENV RELAY_TESTKIT_BIND=0.0.0.0:9099
EXPOSE 9099
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python", "-I", "/opt/relay/healthy.py", "9099", "/"]
CMD ["testkit"]
