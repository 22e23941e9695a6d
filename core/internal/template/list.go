package template

// The functions that templates may call are those of these lists, and no
// others: what a library adds is not available until it was reviewed.

// allowed functions of sprig, sorted.
func allowed() []string {
	return []string{
		"abbrev", "abbrevboth", "add", "add1", "add1f", "addf", "adler32sum", "ago", "all", "any",
		"append", "atoi", "b32dec", "b32enc", "b64dec", "b64enc", "base", "bcrypt", "biggest",
		"buildCustomCert", "camelcase", "cat", "ceil", "chunk", "clean", "coalesce", "compact",
		"concat", "contains", "date", "dateInZone", "dateModify", "date_in_zone", "date_modify",
		"decryptAES", "deepCopy", "deepEqual", "default", "derivePassword", "dict", "dig", "dir",
		"div", "divf", "duration", "durationRound", "empty", "encryptAES", "ext", "fail", "first",
		"float64", "floor", "fromJson", "genCA", "genCAWithKey", "genPrivateKey",
		"genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey",
		"get", "has", "hasKey", "hasPrefix", "hasSuffix", "hello", "htmlDate", "htmlDateInZone",
		"htpasswd", "indent", "initial", "initials", "int", "int64", "isAbs", "join", "kebabcase",
		"keys", "kindIs", "kindOf", "last", "list", "lower", "max", "maxf", "merge",
		"mergeOverwrite", "min", "minf", "mod", "mul", "mulf", "mustAppend", "mustChunk",
		"mustCompact", "mustDateModify", "mustDeepCopy", "mustFirst", "mustFromJson", "mustHas",
		"mustInitial", "mustLast", "mustMerge", "mustMergeOverwrite", "mustPrepend", "mustPush",
		"mustRegexFind", "mustRegexFindAll", "mustRegexMatch", "mustRegexReplaceAll",
		"mustRegexReplaceAllLiteral", "mustRegexSplit", "mustRest", "mustReverse", "mustSlice",
		"mustToDate", "mustToJson", "mustToPrettyJson", "mustToRawJson", "mustUniq", "mustWithout",
		"must_date_modify", "nindent", "nospace", "now", "omit", "osBase", "osClean", "osDir",
		"osExt", "osIsAbs", "pick", "pluck", "plural", "prepend", "push", "quote", "randAlpha",
		"randAlphaNum", "randAscii", "randBytes", "randInt", "randNumeric", "regexFind",
		"regexFindAll", "regexMatch", "regexQuoteMeta", "regexReplaceAll", "regexReplaceAllLiteral",
		"regexSplit", "repeat", "replace", "rest", "reverse", "round", "semver", "semverCompare",
		"seq", "set", "sha1sum", "sha256sum", "sha512sum", "shuffle", "slice", "snakecase",
		"sortAlpha", "split", "splitList", "splitn", "squote", "sub", "subf", "substr", "swapcase",
		"ternary", "title", "toDate", "toDecimal", "toJson", "toPrettyJson", "toRawJson", "toString",
		"toStrings", "trim", "trimAll", "trimPrefix", "trimSuffix", "trimall", "trunc", "tuple",
		"typeIs", "typeIsLike", "typeOf", "uniq", "unixEpoch", "unset", "until", "untilStep",
		"untitle", "upper", "urlJoin", "urlParse", "uuidv4", "values", "without", "wrap", "wrapWith",
	}
}

// refusal of a function of sprig.
type refusal struct{ name, why string }

// refused functions of sprig, sorted.
func refused() []refusal {
	return []refusal{
		{"env", "templates must not read the operator's environment"},
		{"expandenv", "templates must not read the operator's environment"},
		{"getHostByName", "templates must not use DNS: a name that is asked for can carry a value out"},
	}
}

// builtin functions of text/template, sorted. slice is sprig's, and takes lists
// only, as in all engines with sprig.
func builtin() []string {
	return []string{
		"and", "call", "eq", "ge", "gt", "html", "index", "js", "le", "len", "lt", "ne", "not", "or",
		"print", "printf", "println", "slice", "urlquery",
	}
}

// own functions, sorted: those of External Secrets Operator's engine v2.
func own() []string {
	return []string{
		"certSANs", "filterCertChain", "filterPEM", "fromYaml", "fullPemToPkcs12",
		"fullPemToPkcs12Pass", "hexdec", "jwkPrivateKeyPem", "jwkPublicKeyPem", "pemToPkcs12",
		"pemToPkcs12Pass", "pemTruststoreToPKCS12", "pemTruststoreToPKCS12Pass", "pkcs12cert",
		"pkcs12certPass", "pkcs12key", "pkcs12keyPass", "rsaDecrypt", "toYaml",
	}
}
