# Warpstep with the CUDA backend, for every architecture that CUDA 13 supports. In the root of the repository:
#
#   docker build -f tools/docker/cuda.Dockerfile -t warpstep:cuda .
#   docker run --rm --gpus all -v "$PWD":/data warpstep:cuda train cifar10cnn --data DIR --device cuda
#
# Needs NVIDIA's container toolkit to run, none to build. Not yet built or run.
FROM nvidia/cuda:13.0.1-cudnn-devel-ubuntu24.04 AS build
WORKDIR /src
COPY . .
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN tools/setup
RUN cmake --preset release-cuda && cmake --build --preset release-cuda
RUN cmake --install build/release-cuda --prefix /opt/warpstep --strip

FROM nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04
COPY --from=build /opt/warpstep /usr/local
# Versions are those of the tag above.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends cuda-cupti-13-0 libcairo2 libdeflate0 libfmt9 libgomp1 libjpeg-turbo8 libpng16-16t64 \
    && rm -rf /var/lib/apt/lists/* \
    && ldconfig \
    && mkdir -p /data && chown 1000 /data
USER 1000
WORKDIR /data
ENTRYPOINT ["warpstep"]
CMD ["--help"]
