# syntax=docker/dockerfile:1
# The base is pinned by the digest of its multi-platform index, so that a build is the one that was tested. To update it:
# docker buildx imagetools inspect node:26-trixie-slim
FROM node:26-trixie-slim@sha256:930557a230abacbc3f4fd9b8648abf8f4bee1e17cb72195dcdfb2f709bc85b33 AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc tsconfig.json ./
# The Node of devDependencies is for machines with an older one; the build runs on this image's.
RUN npm ci --ignore-scripts && node node_modules/esbuild/install.js
COPY bin ./bin
COPY scripts ./scripts
COPY src ./src
# The repository is not in the build: docker build --build-arg SIDEGATE_REVISION=$(git rev-parse HEAD) .
ARG SIDEGATE_REVISION=
RUN node scripts/build.ts && node scripts/sbom.ts
# The files of a layer have fixed times and rights, so that two builds make the same one (docs/supply-chain.md). BuildKit sets the argument.
ARG SOURCE_DATE_EPOCH=0
RUN find dist node_modules/@node-rs -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} + \
 && chmod --recursive u=rwX,go=rX dist node_modules/@node-rs

FROM node:26-trixie-slim@sha256:930557a230abacbc3f4fd9b8648abf8f4bee1e17cb72195dcdfb2f709bc85b33 AS root
# Since Node 25 the binary links libatomic.
RUN apt-get update \
 && apt-get install -y --no-install-recommends binutils ca-certificates libatomic1
COPY scripts/image-root.sh /
COPY --from=build /build/node_modules/@node-rs /native
ARG SOURCE_DATE_EPOCH=0
RUN bash /image-root.sh /image /native/*/*.node \
 && find /image -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

FROM scratch
COPY --from=root /image /
LABEL org.opencontainers.image.title="sidegate" \
      org.opencontainers.image.description="Lets only verified webhooks reach the app beside it, each one once" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /build/dist/*.cjs /build/dist/console-page.* /opt/sidegate/
COPY --from=build /build/dist/sidegate.cdx.json /build/dist/THIRD-PARTY-LICENSES.txt /opt/sidegate/
# The native bcrypt of this platform, for routes that ask for passwords.
COPY --from=build /build/node_modules/@node-rs /opt/sidegate/node_modules/@node-rs
# Freed memory returns to the kernel at once. By default glibc keeps what a password hash or a large body used, once for each thread's arena,
# and a container of 96 MiB is then killed by guesses at argon2id. A threshold of 128 KiB left 40 MiB of free blocks after a flood of events,
# and the memory stayed tight; 32 KiB costs 0 to 5 % of CPU for bodies of 64 KiB, and nothing for small ones.
ENV PATH=/usr/local/bin:/usr/bin MALLOC_ARENA_MAX=2 MALLOC_MMAP_THRESHOLD_=32768 MALLOC_TRIM_THRESHOLD_=131072
USER 65532:65532
# By the config's defaults; 8480 and 8481 as an injected sidecar; the injector has 10250 and 8481.
EXPOSE 8080 9090 8480 8481 10250
STOPSIGNAL SIGTERM
# The heap gets half of the container's memory limit; the rest is for bodies, connections and the process itself.
# Node's permission model denies child processes, the inspector, FFI and WASI (docs/adr/0021-permission-model.md).
ENTRYPOINT ["node", "--max-old-space-size-percentage=50", "--permission", "--allow-fs-read=*", "--allow-fs-write=*", "--allow-net", "--allow-worker", "--allow-addons", "--disable-warning=PERM0001", "--disable-warning=PERM0006", "--disable-warning=ExperimentalWarning", "/opt/sidegate/sidegate.cjs"]
CMD ["run", "--config", "/etc/sidegate/gate.yaml"]
