//! `dormouse serve`: serves the control API of a store at rest, which is opened for reading only.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::api::Scope;

use crate::args::Store;
use crate::control_api::Listen;
use crate::failure::Failure;
use crate::read_only::open_read_only;
use crate::stop_signals::StopSignals;
use crate::store_address::is_cluster;
use crate::terminal;

/// Where the API is served if --listen names no address: at a port that the system chooses.
const DEFAULT_ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// `dormouse serve`
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) listen: Listen,
}

/// Serves a store until the program is stopped. Prints the address and the token, a line each.
pub(crate) async fn serve(mut args: Serve) -> Result<ExitCode, Failure> {
    if is_cluster(&args.store.folder) {
        return Err(Failure::Usage(
            "serve takes the folder of a store: what is on a cluster is served by nothing yet"
                .to_owned(),
        ));
    }
    let mut stop = StopSignals::listen()?;
    // A folder has all processes.
    let kernel = open_read_only(&args.store, dormouse::id::Pid(0)).await?;
    args.listen.listen.get_or_insert(DEFAULT_ADDRESS.into());
    let port = args.listen.open(Scope::Look).await?;
    let port = port.expect("an address was given");
    let mut out = terminal::stdout();
    writeln!(out, "{}", port.url)?;
    writeln!(out, "{}", port.secret)?;
    out.flush()?;
    let mut code = 0;
    let until = async { code = stop.next().await };
    port.serve(&kernel, until).await?;
    kernel.shutdown().await?;
    Ok(ExitCode::from(code))
}
