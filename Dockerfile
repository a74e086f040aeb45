# The operator's image: one static binary and nothing else.
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26 AS build
ARG TARGETOS TARGETARCH VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY pkg pkg
COPY deploy deploy
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /postgres-operator ./cmd/postgres-operator

FROM scratch
COPY --from=build /postgres-operator /postgres-operator
USER 65532:65532
ENTRYPOINT ["/postgres-operator"]
CMD ["run"]
