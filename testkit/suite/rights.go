package suite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/external-secrets/eso/release/metadata"

	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/repository"
	"github.com/external-secrets/eso/testkit/selection"
)

// RightsFile is the name of the file, in the folder of selection.OutputEnv, in
// which Main records the rights that the tests of its package have used.
const RightsFile = "rights.json"

// Rights are what requests have used and were refused, by account as the API
// server names it, each as "group/resource verb". The resource has its
// subresource, such as "/pods/log get".
type Rights struct {
	Used    map[string]map[string]bool `json:"used"`
	Refused map[string]map[string]bool `json:"refused"`
	// Granted are the rights that an account has, each with the names of the roles
	// that have it, without those that tests add.
	Granted map[string]map[string][]string `json:"granted"`
}

// Accounts are the names with which the API server identifies the ServiceAccounts of
// the operator and of all providers.
func Accounts() ([]string, error) {
	root, err := repository.Root()
	if err != nil {
		return nil, err
	}

	all, err := metadata.All(root)
	if err != nil {
		return nil, err
	}

	accounts := []string{"system:serviceaccount:" + installation.OperatorNamespace + ":" + installation.OperatorAccount}
	for _, m := range all {
		accounts = append(accounts, "system:serviceaccount:"+m.Program()+":"+m.Account())
	}

	return accounts, nil
}

// auditFlags make the API server record the requests of the product's own
// processes.
func auditFlags(dir string) ([]string, error) {
	accounts, err := Accounts()
	if err != nil {
		return nil, err
	}

	policy, err := yaml.Marshal(auditv1.Policy{
		TypeMeta:   metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "Policy"},
		OmitStages: []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseStarted},
		Rules:      []auditv1.PolicyRule{{Level: auditv1.LevelMetadata, Users: accounts}, {Level: auditv1.LevelNone}},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot write the audit policy: %w", err)
	}

	file := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(file, policy, 0o600); err != nil {
		return nil, fmt.Errorf("cannot write the audit policy: %w", err)
	}

	return []string{"--audit-policy-file=" + file, "--audit-log-path=" + auditLog(dir)}, nil
}

func auditLog(dir string) string { return filepath.Join(dir, "audit.log") }

// recordRights writes the rights that the tests have used to the folder of
// selection.OutputEnv. Where -run has left tests out, they are not all that the package
// uses, and are not written.
func (s *Suite) recordRights() error {
	folder := os.Getenv(selection.OutputEnv)
	if run := flag.Lookup("test.run"); folder == "" || (run != nil && run.Value.String() != "") {
		return nil
	}

	rights, err := readAuditLog(auditLog(s.SocketDir))
	if err != nil {
		return err
	}

	if rights.Granted, err = s.granted(context.Background()); err != nil {
		return err
	}

	text, err := json.MarshalIndent(rights, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the rights: %w", err)
	}

	if err := os.WriteFile(filepath.Join(folder, RightsFile), text, 0o644); err != nil {
		return fmt.Errorf("cannot write the rights: %w", err)
	}

	return nil
}

func readAuditLog(name string) (Rights, error) {
	rights := Rights{Used: map[string]map[string]bool{}, Refused: map[string]map[string]bool{}}

	file, err := os.Open(filepath.Clean(name))
	if errors.Is(err, fs.ErrNotExist) {
		return rights, nil
	}

	if err != nil {
		return rights, fmt.Errorf("cannot read the audit log: %w", err)
	}
	defer file.Close()

	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)

	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return rights, fmt.Errorf("cannot read the audit log: %w", err)
		}

		if event.ObjectRef == nil {
			continue
		}

		to := rights.Used
		if event.ResponseStatus != nil && event.ResponseStatus.Code == 403 {
			to = rights.Refused
		}

		if to[event.User.Username] == nil {
			to[event.User.Username] = map[string]bool{}
		}

		resource := event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			resource += "/" + event.ObjectRef.Subresource
		}

		to[event.User.Username][strings.Join([]string{event.ObjectRef.APIGroup, "/", resource, " ", event.Verb}, "")] = true
	}

	if err := lines.Err(); err != nil {
		return rights, fmt.Errorf("cannot read the audit log: %w", err)
	}

	return rights, nil
}

// granted reads what all accounts may do.
func (s *Suite) granted(ctx context.Context) (map[string]map[string][]string, error) {
	accounts, err := Accounts()
	if err != nil {
		return nil, err
	}

	// The rules that GenericTargets has added to the operator's role are for tests. The
	// controller manager removes it from the role.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: genericTargetsRole}}
	if err := s.Client.Delete(ctx, role); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cannot delete the role of the tests: %w", err)
	}

	var operator map[string][]string

	err = wait.PollUntilContextTimeout(ctx, pollInterval, Patience, true, func(ctx context.Context) (bool, error) {
		operator, err = s.grantsOf(ctx, accounts[0])

		return err == nil && len(operator["example.com/things get"]) == 0, err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the operator's rights: %w", err)
	}

	all := map[string]map[string][]string{accounts[0]: operator}

	for _, account := range accounts[1:] {
		if all[account], err = s.grantsOf(ctx, account); err != nil {
			return nil, err
		}
	}

	return all, nil
}

// grants are rights, each with the roles that have it.
type grants map[string][]string

func (g grants) add(role string, rules []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					right := group + "/" + resource + " " + verb
					g[right] = append(g[right], role)
				}
			}
		}
	}
}

// grantsOf reads what a ServiceAccount is bound to.
func (s *Suite) grantsOf(ctx context.Context, account string) (map[string][]string, error) {
	granted := grants{}

	bound := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && account == "system:serviceaccount:"+s.Namespace+":"+s.Name
		})
	}

	var (
		clusterRoles    rbacv1.ClusterRoleList
		clusterBindings rbacv1.ClusterRoleBindingList
		bindings        rbacv1.RoleBindingList
		roles           rbacv1.RoleList
	)

	for _, err := range []error{
		s.Client.List(ctx, &clusterRoles), s.Client.List(ctx, &clusterBindings),
		s.Client.List(ctx, &bindings), s.Client.List(ctx, &roles),
	} {
		if err != nil {
			return nil, fmt.Errorf("cannot read the rights: %w", err)
		}
	}

	rules := map[string][]rbacv1.PolicyRule{}
	for _, role := range clusterRoles.Items {
		rules["ClusterRole/"+role.Name] = role.Rules
	}

	for _, role := range roles.Items {
		rules["Role/"+role.Namespace+"/"+role.Name] = role.Rules
	}

	for _, binding := range clusterBindings.Items {
		if bound(binding.Subjects) {
			granted.add(binding.RoleRef.Name, rules["ClusterRole/"+binding.RoleRef.Name])
		}
	}

	for _, binding := range bindings.Items {
		switch {
		case !bound(binding.Subjects):
		case binding.RoleRef.Kind == "ClusterRole":
			granted.add(binding.RoleRef.Name, rules["ClusterRole/"+binding.RoleRef.Name])
		default:
			granted.add(binding.RoleRef.Name, rules["Role/"+binding.Namespace+"/"+binding.RoleRef.Name])
		}
	}

	return granted, nil
}
