module github.com/external-secrets/eso/providers/kubernetes

go 1.26.0

require (
	github.com/external-secrets/eso/api v0.1.0
	github.com/external-secrets/eso/sdk v0.1.0
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
	google.golang.org/grpc v1.85.0
	k8s.io/api v0.37.0
	k8s.io/apimachinery v0.37.0
	k8s.io/client-go v0.37.0
)

replace github.com/external-secrets/eso/api => ../../api

replace github.com/external-secrets/eso/sdk => ../../sdk
