# One image for every gymq process; what it runs is the command.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
# Which extras of gymq are installed beside `observability`, with commas between.
ARG EXTRAS=resources
WORKDIR /src
RUN python -m venv /opt/gymq
# The dependencies are a layer of their own, made again only when they change: nothing of gymq is there yet but its name.
COPY pyproject.toml README.md ./
RUN mkdir gymq workers && touch gymq/__init__.py workers/__init__.py
RUN --mount=type=cache,target=/root/.cache/pip /opt/gymq/bin/pip install --quiet ".[observability,${EXTRAS}]"
COPY gymq ./gymq
COPY workers ./workers
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/gymq/bin/pip install --quiet --no-deps --force-reinstall . && \
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
