# A trained chatbot as a service: see docs/guides/serving.md.
FROM python:3.12-slim

WORKDIR /source
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY towers towers
COPY models models
COPY data data
COPY scripts scripts
RUN pip install --no-cache-dir '.[serve]' && rm -rf /source

RUN useradd --create-home towers
USER towers
WORKDIR /home/towers
EXPOSE 8000
# Ctrl-C ends it at any time, also while it still starts.
STOPSIGNAL SIGINT
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz')"]
ENTRYPOINT ["towers", "serve", "--host", "0.0.0.0"]
CMD ["/runs/chatbot"]
