# docker build --build-arg VERSION=$(git describe --tags --always) -t holdfast .
# docker run -p 8080:8080 -v ./config.yaml:/etc/holdfast/config.yaml:ro holdfast
#
# The binary is built on the builder's own platform for the image's, as `make release` builds it.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=dev DOCS=docs
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION -X 'holdfast/proxy.docsAt=$DOCS'" -o /image/holdfast ./cmd/holdfast
# For the spool, unless limits.spool.dir names another place.
RUN mkdir -m 1777 /image/tmp

FROM scratch
COPY --from=build /image/ /
USER 65532:65532
ENV HOLDFAST_CONFIG=/etc/holdfast/config.yaml
EXPOSE 8080
ENTRYPOINT ["/holdfast"]
