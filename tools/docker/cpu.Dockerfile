# Warpstep for CPUs: built in the first stage, installed as its Debian package in the second. In the root of the repository:
#
#   docker build -f tools/docker/cpu.Dockerfile -t warpstep .
#   docker run --rm -v "$PWD":/data warpstep train cifar10cnn --data DIR
FROM debian:12-slim AS build
WORKDIR /src
COPY . .
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# cpack finds the package's dependencies with dpkg-dev. Versions are those of the tag above.
# hadolint ignore=DL3008
RUN tools/setup && apt-get install -y --no-install-recommends dpkg-dev file
RUN cmake --preset release && cmake --build --preset release
RUN cpack -G DEB --config build/release/CPackConfig.cmake

FROM debian:12-slim
COPY --from=build /src/build/release/packages/*.deb /tmp/
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/*.deb \
    && rm -rf /tmp/*.deb /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home warpstep \
    && mkdir /data && chown warpstep /data
USER 1000
WORKDIR /data
ENTRYPOINT ["warpstep"]
CMD ["--help"]
