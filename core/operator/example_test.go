package operator_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"

	"github.com/external-secrets/eso/core/generator"
	"github.com/external-secrets/eso/core/operator"
)

// tokens generates random tokens. Every reference is valid: the kind has no
// objects.
type tokens struct{ prefix string }

var _ generator.Resolver = tokens{}

func (t tokens) Generate(context.Context, generator.Reference, string) (map[string][]byte, error) {
	return map[string][]byte{"token": []byte(t.prefix + rand.Text())}, nil
}

// The main function of an operator with a further kind of generator. A command
// passes os.Args[1:] and exits with the code that Main returns.
func ExampleMain() {
	var prefix string

	extension := operator.Extension{
		Flags: func(flags *flag.FlagSet) {
			flags.StringVar(&prefix, "token-prefix", "", "prefix of generated tokens")
		},
		Generators: map[string]func(operator.Environment) (generator.Resolver, error){
			"tokens.example.com/v1": func(operator.Environment) (generator.Resolver, error) { return tokens{prefix}, nil },
		},
	}

	code := operator.Main("example-operator", []string{"--token-prefix=t-", "--version"}, os.Stderr, os.Stderr, extension)
	fmt.Println("exit code", code)

	// Output: exit code 0
}
