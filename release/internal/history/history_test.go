package history

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// repository makes a git repository; commit writes files and commits them.
func repository(t *testing.T) (h History, run func(args ...string), commit func(files ...string)) {
	t.Helper()
	h = History{Root: t.TempDir()}
	run = func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = h.Root
		cmd.Env = append(os.Environ(),
			"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com",
			"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	commits := 0
	commit = func(files ...string) {
		t.Helper()
		commits++
		for _, name := range files {
			file := filepath.Join(h.Root, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(strconv.Itoa(commits)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run("add", "-A")
		run("commit", "-q", "-m", "change")
	}
	run("init", "-q")
	return h, run, commit
}

func TestHistory(t *testing.T) {
	h, run, commit := repository(t)
	commit("api/a", "core/a", "core/legacy/a")
	run("tag", "core/v0.9.0")
	commit("core/a")
	run("tag", "core/v0.10.0")
	commit("core/a", "api/a")
	commit("core/legacy/a")
	run("tag", "core/legacy/v3.0.0")
	// A tag on another branch is no release of this one.
	run("checkout", "-q", "-b", "other", "core/v0.9.0")
	commit("core/b")
	run("tag", "core/v0.11.0")
	run("checkout", "-q", "-")

	for _, test := range []struct {
		why, prefix, dir string
		without          []string
		tag              string
		commits          int
	}{
		{why: "0.10 is after 0.9, and nested modules have tags of their own", prefix: "core/", dir: "core", without: []string{"core/legacy"}, tag: "core/v0.10.0", commits: 1},
		{why: "a nested module counts only where it is not left out", prefix: "core/", dir: "core", tag: "core/v0.10.0", commits: 2},
		{why: "without a tag everything is new", prefix: "api/", dir: "api", commits: 2},
	} {
		t.Run(test.why, func(t *testing.T) {
			tag, err := h.LastTag(t.Context(), test.prefix)
			if err != nil {
				t.Fatal(err)
			}
			if tag != test.tag {
				t.Errorf("LastTag() = %q, want %q", tag, test.tag)
			}
			commits, err := h.Commits(t.Context(), tag, test.dir, test.without...)
			if err != nil {
				t.Fatal(err)
			}
			if commits != test.commits {
				t.Errorf("Commits() = %d, want %d", commits, test.commits)
			}
		})
	}
}

func TestOutsideOfARepository(t *testing.T) {
	h := History{Root: t.TempDir()}
	if _, err := h.LastTag(t.Context(), "api/"); err == nil {
		t.Error("LastTag() without a repository is no error")
	}
}
