# One image for every gymq process; what it runs is the command.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
# Which extras of gymq are installed beside `observability`, with commas between.
ARG EXTRAS=resources
WORKDIR /src
RUN python -m venv /opt/gymq
# The dependencies are a layer of their own, made again only when they change. They are those of the lock, with its hashes;
# what builds packages stays behind.
COPY pyproject.toml README.md LICENSE ./
COPY requirements ./requirements
ENV PYTHONPATH=/opt/build
RUN --mount=type=cache,target=/root/.cache/pip \
    python requirements/for_extras.py build > /build.txt && \
    python requirements/for_extras.py "observability,${EXTRAS}" > /needed.txt && \
    /opt/gymq/bin/pip install --quiet --no-deps --require-hashes --target /opt/build -r /build.txt && \
    /opt/gymq/bin/pip install --quiet --no-deps --require-hashes --no-build-isolation --ignore-installed -r /needed.txt
COPY gymq ./gymq
COPY workers ./workers
COPY examples/demo ./examples/demo
RUN /opt/gymq/bin/pip install --quiet --no-deps --no-build-isolation . && \
    PYTHONPATH= /opt/gymq/bin/pip check && \
    /opt/gymq/bin/python -m compileall -q /opt/gymq/lib/python*/site-packages/gymq

FROM ${PYTHON_IMAGE}
# A volume takes its owner from the folder that it is mounted on first.
RUN useradd --create-home --uid 1000 gymq && install -d -m 700 -o gymq -g gymq /auth /streams /streams-2 /streams-3 /runs
COPY --from=build /opt/gymq /opt/gymq
ENV PATH=/opt/gymq/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
WORKDIR /home/gymq
COPY examples/demo ./demo
ENTRYPOINT ["gymq"]
CMD ["--help"]
