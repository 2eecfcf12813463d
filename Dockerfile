# An image that serves the project in deploy/project: put yours in its place, then `docker build -t handrail .`
# It runs as a user without a name, on a root that is only read; it writes to /var/lib/handrail and nowhere else.

FROM python:3.12-slim AS build
ARG EXTRAS=server,postgres,reference
WORKDIR /build
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY src ./src
COPY packages ./packages
RUN sed -n '/^[a-zA-Z]/s/ *\\$//p' requirements.lock > versions.txt
RUN PIP_CONSTRAINT=/build/versions.txt pip wheel --no-cache-dir --no-deps --wheel-dir /build/wheels . ./packages/handrail-reference
RUN python -m venv /opt/handrail
# Ours by their paths: by name, the index would be asked too, whose higher version would be taken. pip reads no hashes beside
# requirements that it has to resolve, so the lock gives the versions, and what was installed is compared with it.
RUN /opt/handrail/bin/pip install --no-cache-dir --only-binary :all: --constraint versions.txt --report /build/report.json \
    "$(echo /build/wheels/handrail-*.whl)[${EXTRAS}]" /build/wheels/handrail_reference-*.whl
RUN python -c "import json; lock = open('requirements.lock').read(); \
    files = [one['download_info'] for one in json.load(open('report.json'))['install']]; \
    strange = [one['url'] for one in files if '/build/wheels/' not in one['url'] \
    and 'sha256:' + one['archive_info']['hashes']['sha256'] not in lock]; \
    assert not strange, f'not as requirements.lock has them: {strange}'"
COPY deploy/project /srv/project
RUN cd /srv/project && /opt/handrail/bin/handrail build --strict

FROM python:3.12-slim
RUN install -d -o 10001 -g 10001 -m 0700 /var/lib/handrail
COPY --from=build /opt/handrail /opt/handrail
COPY --from=build /srv/project /srv/project
ENV PATH=/opt/handrail/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    HANDRAIL_ENV=production \
    HANDRAIL_AUDIT_DIRECTORY=/var/lib/handrail/audit
WORKDIR /srv/project
USER 10001:10001
VOLUME /var/lib/handrail
EXPOSE 8484
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ.get('HANDRAIL_SERVER_PORT', '8484')}/readyz\", timeout=2)"]
CMD ["sh", "-c", "exec handrail serve --host 0.0.0.0 --key - < /run/secrets/handrail-key"]
