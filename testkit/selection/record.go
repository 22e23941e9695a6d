package selection

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// OutputEnv names a folder in which a test may leave files. They are kept with
	// the record that it has passed.
	OutputEnv = "ESO_TEST_OUTPUT"
	// OutputsEnv names a folder that holds the files which all other tests have
	// left, in a folder for each package. It is set for tests with the directive
	// //test:outputs.
	OutputsEnv = "ESO_TEST_OUTPUTS"
)

// outputSuffix follows the hash in the name of a folder of files that a test has
// left.
const outputSuffix = ".output"

// kept is how long a record is kept after it was last used.
const kept = 30 * 24 * time.Hour

// Records are the hashes of inputs with which tests have passed on this
// machine. Any number of processes may use the same folder.
type Records struct{ dir string }

// OpenRecords opens the records of this machine's user, and removes those that
// nothing has used for a month.
func OpenRecords() (*Records, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("cannot find the user's cache folder: %w", err)
	}

	return OpenRecordsIn(filepath.Join(cache, "external-secrets", "passed"))
}

// OpenRecordsIn is OpenRecords for the records in a folder.
func OpenRecordsIn(dir string) (*Records, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the folder for records of tests: %w", err)
	}

	r := &Records{dir: dir}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the records of tests: %w", err)
	}

	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > kept {
			_ = os.RemoveAll(filepath.Join(dir, entry.Name()))
		}
	}

	return r, nil
}

// Passed reports whether a test has passed with the inputs that it has now.
func (r *Records) Passed(test Test) (bool, error) {
	name := filepath.Join(r.dir, test.Key)

	_, err := os.Stat(name)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot read the record of a test: %w", err)
	}

	// Its age is that of its last use.
	now := time.Now()
	_ = os.Chtimes(name, now, now)
	_ = os.Chtimes(name+outputSuffix, now, now)

	return true, nil
}

// Add records that a test has passed, with the files that it has left in a
// folder. The folder need not exist.
func (r *Records) Add(test Test, output string) error {
	name := filepath.Join(r.dir, test.Key)

	if _, err := os.Stat(output); err == nil {
		if err := os.RemoveAll(name + outputSuffix); err != nil {
			return fmt.Errorf("cannot replace the output of a test: %w", err)
		}

		if err := os.CopyFS(name+outputSuffix, os.DirFS(output)); err != nil {
			return fmt.Errorf("cannot keep the output of a test: %w", err)
		}
	}

	if err := os.WriteFile(name, []byte(test.Path+"\n"), 0o644); err != nil {
		return fmt.Errorf("cannot record that tests have passed: %w", err)
	}

	return nil
}

// Remove forgets that a test has passed with its present inputs. A caller that runs
// the test again removes the record first: a failure must not leave it behind.
func (r *Records) Remove(test Test) error {
	name := filepath.Join(r.dir, test.Key)

	if err := errors.Join(os.RemoveAll(name), os.RemoveAll(name+outputSuffix)); err != nil {
		return fmt.Errorf("cannot remove the record of a test: %w", err)
	}

	return nil
}

// Output copies the files that a test has left when it passed to a folder of
// its own below another one. It does nothing where there are none.
func (r *Records) Output(test Test, below string) error {
	kept := filepath.Join(r.dir, test.Key+outputSuffix)
	if _, err := os.Stat(kept); err != nil {
		return nil //nolint:nilerr // it has left nothing
	}

	if err := os.CopyFS(filepath.Join(below, strings.ReplaceAll(test.Folder, "/", "-")), os.DirFS(kept)); err != nil {
		return fmt.Errorf("cannot copy the output of %s: %w", test.Folder, err)
	}

	return nil
}

// Undeclared returns the files of the repository that a test has opened and
// that are none of its inputs: a change of such a file would not make the test
// run again. The log is that of the test flag -test.testlogfile; dir is the
// folder that the test ran in. Folders, and files that have gone, are left out.
func Undeclared(root, dir string, test Test, log []byte) []string {
	found := map[string]bool{}

	for line := range strings.Lines(string(log)) {
		verb, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")

		switch verb {
		case "chdir":
			dir = absolute(dir, name)
		case "open":
			file, ok := relative(root, absolute(dir, name))
			if !ok || test.Has(file) || ignored(file) {
				continue
			}

			if info, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err == nil && info.Mode().IsRegular() {
				found[file] = true
			}
		}
	}

	return sorted(found)
}

// ignored files describe the workspace rather than decide a test: versions of
// modules are hashed as such. Folders of tools are no part of the repository.
func ignored(file string) bool {
	return file == "go.work" || file == "go.work.sum" || strings.HasPrefix(file, ".")
}

func absolute(dir, name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}

	return filepath.Join(dir, name)
}
