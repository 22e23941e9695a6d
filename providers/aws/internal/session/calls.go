package session

import (
	"context"
	"errors"
	"strings"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/external-secrets/eso/sdk/provider"
)

// deadline bounds each call, including its retries.
func deadline(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("ExternalSecretsDeadline",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()

			return next.HandleInitialize(ctx, in)
		}), middleware.Before)
}

// counted counts each request, by operation and AWS's code.
func counted(calls provider.Calls) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		if calls == nil {
			return nil
		}

		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("ExternalSecretsCalls",
			func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
				began := time.Now()
				out, metadata, err := next.HandleFinalize(ctx, in)

				// An error of this provider itself is no call of AWS.
				if _, ours := errors.AsType[*provider.Error](err); !ours {
					calls.Called(awsmiddleware.GetOperationName(ctx), code(err), time.Since(began))
				}

				return out, metadata, err
			}), "Retry", middleware.After)
	}
}

// code returns the code of a response: OK, AWS's own code, or "error" if there is
// none. There must be few distinct ones.
func code(err error) string {
	if err == nil {
		return "OK"
	}

	const maxCode = 64

	var refusal smithy.APIError
	if !errors.As(err, &refusal) || len(refusal.ErrorCode()) > maxCode {
		return "error"
	}

	name := refusal.ErrorCode()
	if name == "" || name == unknownError || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.'
	}) {
		return "error"
	}

	return name
}
