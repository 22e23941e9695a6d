"""Go rules with this repository's conventions. Gazelle writes them by map_kind."""

load("@rules_go//go:def.bzl", "go_binary", "go_test")

def go_command(name, **kwargs):
    """A go_binary that carries the version of its module with --config=release.

    The same variables as hack/build.sh: a command either has version and
    commit of its own, or uses its module's package internal/version. The linker
    ignores those that are not there.
    """
    module = native.package_name().split("/cmd/")[0]
    version = "{STABLE_%s_VERSION}" % module.upper().replace("/", "_").replace("-", "_")
    library = "github.com/external-secrets/eso/%s/internal/version" % module
    go_binary(
        name = name,
        x_defs = {
            "main.version": version,
            "main.commit": "{STABLE_GIT_COMMIT}",
            library + ".Version": version,
            library + ".Commit": "{STABLE_GIT_COMMIT}",
        },
        **kwargs
    )

def controlplane_test(name, data = [], tags = [], **kwargs):
    """A go_test that starts a Kubernetes control plane, and may build it first.

    It needs the go command, the repository (ESO_ROOT), the user's caches and
    the network, so it runs outside of the sandbox, and only when asked for:
    --config=controlplane.
    """
    go_test(
        name = name,
        size = "enormous",
        data = data + native.glob(["build/**/go.mod"], allow_empty = True),
        env_inherit = [
            "ESO_MOTO_SERVER",
            "ESO_ROOT",
            "GOFLAGS",
            "GOPROXY",
            "HOME",
            "KUBEBUILDER_ASSETS",
            "PATH",
            "XDG_CACHE_HOME",
        ],
        tags = tags + [
            "controlplane",
            "exclusive",
            "local",
        ],
        **kwargs
    )
