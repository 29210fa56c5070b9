# One image for every gymq process; what it runs is the command.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md ./
COPY gymq ./gymq
COPY workers ./workers
RUN python -m venv /opt/gymq && /opt/gymq/bin/pip install --no-cache-dir '.[resources]'

FROM python:3.13-slim
# A volume takes its owner from the folder that it is mounted on.
RUN useradd --create-home --uid 1000 gymq && install -d -m 700 -o gymq -g gymq /auth /runs
COPY --from=build /opt/gymq /opt/gymq
ENV PATH=/opt/gymq/bin:$PATH PYTHONUNBUFFERED=1
USER gymq
WORKDIR /home/gymq
COPY --chown=gymq examples/demo /home/gymq/demo
ENTRYPOINT ["gymq"]
CMD ["--help"]
