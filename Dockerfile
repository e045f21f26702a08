# One image for the API and the workers: `python -m service` or `python -m worker`.
FROM python:3.11-slim AS build
ARG TORCH=2.13.0
# "no" leaves torch out: such workers take computations, and no trainings.
ARG TRAINING=yes
WORKDIR /build
RUN python -m venv /venv
COPY requirements/serve.txt requirements/serve.txt
RUN /venv/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements/serve.txt
RUN if [ "$TRAINING" = yes ]; then /venv/bin/pip install --no-cache-dir "torch==$TORCH"; fi
COPY pyproject.toml README.md LICENSE ./
COPY anglewise anglewise
COPY jobs jobs
COPY service service
COPY worker worker
RUN /venv/bin/pip install --no-cache-dir --no-deps .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /home/anglewise --create-home anglewise
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/home/anglewise/.numba \
    MPLCONFIGDIR=/home/anglewise/.matplotlib
USER anglewise
WORKDIR /home/anglewise
EXPOSE 8000
CMD ["python", "-m", "service", "--host", "0.0.0.0"]
