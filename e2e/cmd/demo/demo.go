package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/vaultserver"
)

// manifests are what a user of the product writes. SERVER is the address of
// the demo's Vault.
//
//go:embed manifests.yaml
var manifests string

const (
	namespace   = "demo"
	syncTimeout = 2 * time.Minute
)

type demo struct {
	out, log io.Writer
	once     bool

	vault   *vaultserver.Server
	product *installation.Installation
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) run(ctx context.Context) error {
	d.say("The first run builds a Kubernetes control plane and a Vault, which takes some minutes.\nLater runs take them from the cache.\n")

	var err error
	if d.vault, err = vaultserver.Start(ctx, vaultserver.Options{Log: d.log, Progress: d.out}); err != nil {
		return err
	}

	if d.product, err = installation.Start(ctx, installation.Options{Log: d.log, Progress: d.out, Providers: []string{"fake", "vault"}}); err != nil {
		return err
	}

	d.say("starting the operator ...")

	if err := d.product.StartOperator(ctx); err != nil {
		return err
	}

	for _, name := range []string{"vault", "fake"} {
		d.say("starting the %s provider ...", name)

		if _, err := d.product.StartProvider(ctx, name); err != nil {
			return err
		}
	}

	if err := d.apply(ctx); err != nil {
		return err
	}

	if err := d.show(ctx); err != nil {
		return err
	}

	if err := d.follow(ctx); err != nil {
		return err
	}

	if d.once {
		return nil
	}

	d.say(`
The demo runs until Ctrl-C. Look around, in another terminal:

  alias k='%s --kubeconfig %s -n %s'
  k get secretproviders,secretstores,clustersecretstores,externalsecrets -o wide
  k describe externalsecret app
  k edit fakes fake         # change a value, and look at the Secret "settings"

  export VAULT_ADDR=%s      # a Vault in memory; its root token is in the Secret
  k get secret vault-token -o jsonpath='{.data.token}' | base64 -d`,
		d.product.ControlPlane.KubectlPath(), d.product.ControlPlane.Kubeconfig(), namespace, d.vault.Address())

	<-ctx.Done()

	return nil
}

// apply puts secrets into Vault and the manifests into the cluster.
func (d *demo) apply(ctx context.Context) error {
	if err := d.vault.Write(ctx, "secret/team-a/database", map[string]any{"username": "app", "password": "first-password"}); err != nil {
		return err
	}

	if err := d.vault.Write(ctx, "secret/platform/registry", map[string]any{"token": "registry-token"}); err != nil {
		return err
	}

	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vault-token"},
			StringData: map[string]string{"token": d.vault.RootToken()},
		},
	} {
		if err := d.product.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("cannot create %s %q: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
		}
	}

	d.say("applying the manifests ...\n")

	out, err := d.product.Kubectl(ctx, strings.ReplaceAll(manifests, "SERVER", d.vault.Address()), "-n", namespace, "apply", "--server-side", "--validate=strict", "-f", "-")
	if err != nil {
		return err
	}

	d.say("%s", indent(out))

	return d.until(ctx, d.allSynced)
}

// show prints what was registered and what was synced.
func (d *demo) show(ctx context.Context) error {
	out, err := d.product.Kubectl(ctx, "", "-n", namespace, "get", "secretproviders,clustersecretstores,secretstores,externalsecrets")
	if err != nil {
		return err
	}

	d.say("%s", indent(out))

	var list esv1.ExternalSecretList
	if err := d.product.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("cannot list ExternalSecrets: %w", err)
	}

	table := tabwriter.NewWriter(d.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "  SECRET\tKEY\tVALUE")

	for _, es := range list.Items {
		secret, err := d.secret(ctx, es.Status.Binding.Name)
		if err != nil {
			return err
		}

		for key, value := range secret.Data {
			fmt.Fprintf(table, "  %s\t%s\t%s\n", secret.Name, key, value)
		}
	}

	return table.Flush()
}

// follow changes a value in Vault and waits for the Secret.
func (d *demo) follow(ctx context.Context) error {
	const changed = "second-password"

	d.say("\nchanging the password in Vault ...")

	if err := d.vault.Write(ctx, "secret/team-a/database", map[string]any{"username": "app", "password": changed}); err != nil {
		return err
	}

	began := time.Now()

	err := d.until(ctx, func(ctx context.Context) error {
		secret, err := d.secret(ctx, "app-database")
		if err != nil {
			return err
		}

		if string(secret.Data["password"]) != changed {
			return errors.New("the Secret \"app-database\" has not followed yet")
		}

		return nil
	})
	if err != nil {
		return err
	}

	d.say("the Secret \"app-database\" followed after %s (its refreshInterval is 5s): password is now %q", time.Since(began).Round(100*time.Millisecond), changed)

	return nil
}

func (d *demo) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if err := d.product.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		return nil, fmt.Errorf("cannot read Secret %q: %w", name, err)
	}

	return secret, nil
}

// allSynced says which ExternalSecret is not synced, and why.
func (d *demo) allSynced(ctx context.Context) error {
	var list esv1.ExternalSecretList
	if err := d.product.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("cannot list ExternalSecrets: %w", err)
	}

	if len(list.Items) == 0 {
		return errors.New("there is no ExternalSecret")
	}

	for _, es := range list.Items {
		if len(es.Status.Conditions) == 0 {
			return fmt.Errorf("ExternalSecret %q has no condition yet", es.Name)
		}

		if ready := es.Status.Conditions[0]; ready.Status != metav1.ConditionTrue {
			return fmt.Errorf("ExternalSecret %q is not Ready: %s: %s", es.Name, ready.Reason, ready.Message)
		}
	}

	return nil
}

func (d *demo) until(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()

	for {
		err := check(ctx)
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot sync in time: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stop ends what was started, whatever came of it.
func (d *demo) stop() error {
	var errs []error

	if d.product != nil {
		errs = append(errs, d.product.Stop())
	}

	if d.vault != nil {
		errs = append(errs, d.vault.Stop())
	}

	return errors.Join(errs...)
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}
