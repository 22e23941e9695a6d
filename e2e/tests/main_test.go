// Package tests runs the product end to end: a real control plane, a real
// Vault, and the operator and providers as processes of their own.
package tests

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/vaultserver"
	"github.com/external-secrets/eso/testkit/workloadapi"
)

// Shared by all tests: each works in a namespace of its own.
var (
	product *installation.Installation
	fake    *installation.Provider
	vault   *installation.Provider
	// kubernetesProvider serves Kubernetes and Resource.
	kubernetesProvider *installation.Provider
	backend            *vaultserver.Server
	// trustDomain gives SVIDs to whoever a test serves; the operator's is
	// "operator".
	trustDomain *workloadapi.TrustDomain
	// socketDir is where the operator accepts unix sockets of providers.
	socketDir string
	// logFile has the output of all processes.
	logFile string
)

// operatorFlags are those of every test that does not need others.
var operatorFlags = []string{"--loglevel", "debug", "--unsafe-allow-generic-targets"}

// providerFlags are those that providers need besides: APIs of tests are on this
// machine.
var providerFlags = map[string][]string{"webhook": {"--allow-network=127.0.0.0/8"}}

func TestMain(m *testing.M) {
	flag.Parse()

	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		code = 1
	}

	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	log, err := os.CreateTemp("", "external-secrets-e2e-*.log")
	if err != nil {
		return 1, err
	}

	logFile = filepath.Clean(log.Name())

	defer func() {
		_ = log.Close()

		if code == 0 && err == nil {
			_ = os.Remove(logFile)
		} else {
			fmt.Fprintln(os.Stderr, "the output of all processes is in", logFile)
		}
	}()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()

	if backend, err = vaultserver.Start(ctx, vaultserver.Options{Log: log, Progress: os.Stderr, CountRequests: true}); err != nil {
		return 1, err
	}
	defer backend.Stop() //nolint:errcheck // the process ends with this one in any case

	if socketDir, err = os.MkdirTemp("", "external-secrets-e2e-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(socketDir)

	audited, err := auditFlags(socketDir)
	if err != nil {
		return 1, err
	}

	if product, err = installation.Start(ctx, installation.Options{Log: log, Progress: os.Stderr, APIServerFlags: audited}); err != nil {
		return 1, err
	}

	defer func() {
		if stopErr := product.Stop(); stopErr != nil {
			err = stopErr
		}
	}()

	if trustDomain, err = workloadapi.New("corp", socketDir); err != nil {
		return 1, err
	}
	defer trustDomain.Stop()

	if err := trustDomain.Serve("operator", "spiffe://corp/operator"); err != nil {
		return 1, err
	}

	operatorFlags = append(operatorFlags, "--provider-socket-dir", socketDir, "--spiffe-endpoint-socket", trustDomain.Socket("operator"))

	if err := product.StartOperator(ctx, operatorFlags...); err != nil {
		return 1, err
	}

	if fake, err = product.StartProvider(ctx, "fake"); err != nil {
		return 1, err
	}

	if vault, err = product.StartProvider(ctx, "vault"); err != nil {
		return 1, err
	}

	if kubernetesProvider, err = product.StartProvider(ctx, "kubernetes"); err != nil {
		return 1, err
	}

	if _, err = product.StartProvider(ctx, "webhook", providerFlags["webhook"]...); err != nil {
		return 1, err
	}

	defer stopAWS()

	return m.Run(), nil
}
