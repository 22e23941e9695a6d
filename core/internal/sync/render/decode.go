package render

import (
	"encoding/base64"
	"fmt"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// decode decodes a value. Auto never fails: what is no base64 stays as it is.
func decode(strategy esv1.DecodingStrategy, value []byte) ([]byte, error) {
	switch strategy {
	case esv1.DecodingNone, "":
		return value, nil
	case esv1.DecodingBase64:
		return decodeWith(base64.StdEncoding, value)
	case esv1.DecodingBase64URL:
		return decodeWith(base64.URLEncoding, value)
	case esv1.DecodingAuto:
		if decoded, err := decodeWith(base64.StdEncoding, value); err == nil {
			return decoded, nil
		}

		if decoded, err := decodeWith(base64.URLEncoding, value); err == nil {
			return decoded, nil
		}

		return value, nil
	default:
		return nil, fmt.Errorf("decoding strategy %q is not known", strategy)
	}
}

// decodeWith leaves the text of a decoding error behind: it quotes the value.
func decodeWith(encoding *base64.Encoding, value []byte) ([]byte, error) {
	decoded := make([]byte, encoding.DecodedLen(len(value)))

	n, err := encoding.Decode(decoded, value)
	if err != nil {
		return nil, err
	}

	return decoded[:n], nil
}
