#!/usr/bin/env bash
# Records the current protocol as the released one, which every later change is
# compared with (verify-proto-breaking). Run it when a version of the api module
# is released, and commit the file that it writes.
set -euo pipefail
cd "$(dirname "$0")/../api"
../hack/tool.sh buf build --exclude-source-info -o provider/released.binpb
echo "wrote api/provider/released.binpb"
