package history

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// History is that of the repository whose root is Root.
type History struct{ Root string }

// LastTag returns the newest tag with the prefix that is an ancestor of HEAD,
// or "" when there is none.
func (h History) LastTag(ctx context.Context, prefix string) (string, error) {
	tags, err := h.git(ctx, "tag", "--merged", "HEAD", "--sort=-version:refname", "--list", prefix+"v*")
	if err != nil {
		return "", err
	}
	tag, _, _ := strings.Cut(tags, "\n")
	return tag, nil
}

// Commits counts the commits since a tag, or all when the tag is "", that touch
// a folder. What they do to the folders in without is not counted.
func (h History) Commits(ctx context.Context, tag, dir string, without ...string) (int, error) {
	revisions := "HEAD"
	if tag != "" {
		revisions = "refs/tags/" + tag + "..HEAD"
	}
	args := []string{"rev-list", "--count", revisions, "--", dir}
	for _, w := range without {
		args = append(args, ":(exclude)"+w)
	}
	out, err := h.git(ctx, args...)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(out)
}

func (h History) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = h.Root
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("cannot run git: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
