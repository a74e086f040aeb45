package main

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func clientConfig(kubeconfig string) (*rest.Config, error) {
	config, err := readConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server (flag --kubeconfig outside of a cluster): %w", err)
	}
	config.UserAgent = "postgres-operator/" + version
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	// The queue limits how much is done at once; the client's own limit of five
	// requests a second would only make clusters wait for each other.
	config.QPS, config.Burst = 100, 200
	return config, nil
}

func readConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}
