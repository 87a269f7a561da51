//! Tests which programs a launcher starts.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// A folder with programs in `bin/` and in itself, which is the working directory; `PATH` holds
/// an empty and a relative part before `bin`.
fn launcher(dir: &Path, granted: &[&str]) -> Launcher {
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    for (name, mode) in [("bin/tool", 0o755), ("bin/data", 0o644), ("here", 0o755)] {
        std::fs::write(dir.join(name), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let permissions = granted
        .iter()
        .fold(Permissions::none(), |permissions, program| {
            permissions.allow_run(program.replace("DIR", &dir.display().to_string()))
        });
    launcher_with(dir, &permissions)
}

fn launcher_with(dir: &Path, permissions: &Permissions) -> Launcher {
    let path = format!(":.:{}", dir.join("bin").display());
    let environment = Environment::new([("PATH".into(), path.into())]);
    Launcher::with_environment(permissions, &Arc::default(), dir, environment).unwrap()
}

#[test]
fn a_program_runs_by_the_name_or_the_path_that_is_permitted() {
    let cases = [
        (&["tool"][..], "tool", Ok("DIR/bin/tool")),
        (&["DIR/bin/tool"], "tool", Ok("DIR/bin/tool")),
        (&["DIR/bin/tool"], "DIR/bin/tool", Ok("DIR/bin/tool")),
        (&["DIR/bin/tool"], "bin/tool", Ok("DIR/bin/tool")),
        (&["DIR/here"], "./here", Ok("DIR/here")),
        (&[], "tool", Err("--allow-run=tool,")),
        (&["DIR/absent"], "./absent", Err("there is no file")),
        (&["DIR/bin/data"], "bin/data", Err("chmod +x")),
        (&[], "bin/data", Err("may not run")),
        (&["other"], "tool", Err("Permissions::allow_run(\"tool\")")),
        (&["tool"], "DIR/bin/tool", Err("--allow-run=DIR/bin/tool,")),
        (&["tool"], "bin/tool", Err("--allow-run=DIR/bin/tool,")),
        (&["DIR/bin/tool"], "bin/../here", Err("may not run")),
        (&["here"], "here", Err("no program `here`")),
        (&["data"], "data", Err("no program `data`")),
        (&["absent"], "absent", Err("no program `absent`")),
        (&["tool"], "", Err("may not run")),
    ];
    let dir = tempfile::tempdir().unwrap();
    let fill = |text: &str| text.replace("DIR", &dir.path().display().to_string());
    for (granted, program, expected) in cases {
        let found = launcher(dir.path(), granted).find_program(&fill(program));
        match expected {
            Ok(path) => assert_eq!(
                found,
                Ok(PathBuf::from(fill(path))),
                "{granted:?} {program}"
            ),
            Err(part) => {
                assert!(
                    found.clone().unwrap_err().to_string().contains(&fill(part)),
                    "{granted:?} {program}: {found:?}"
                )
            }
        }
    }
}

#[test]
fn missing_confinement_is_reported_if_a_program_is_permitted() {
    let dir = tempfile::tempdir().unwrap();
    let lacks = |granted: &[&str]| {
        let mut launcher = launcher(dir.path(), granted);
        launcher.support = ConfinementSupport::parse("0,false").unwrap();
        launcher.missing_confinement()
    };
    assert_eq!(lacks(&[]), None);
    assert!(
        lacks(&["tool"]).is_some_and(|lacks| lacks.contains("confine")),
        "{:?}",
        lacks(&["tool"])
    );
}

#[test]
fn without_confinement_a_program_runs_only_with_explicit_permission() {
    let dir = tempfile::tempdir().unwrap();
    launcher(dir.path(), &[]);
    let permitted = Permissions::none().allow_run("tool");
    for (permissions, runs) in [
        (permitted.clone(), false),
        (permitted.allow_without_confinement(), true),
    ] {
        let mut launcher = launcher_with(dir.path(), &permissions);
        launcher.support = ConfinementSupport::parse("0,false").unwrap();
        let request = LaunchRequest {
            argv: &["tool".to_owned()],
            env: Vec::new(),
            access: Access::Read,
            limits: CommandLimits::default(),
            stdin: Stdio::null(),
            folder: None,
        };
        let prepared = launcher.prepare(request).map(drop);
        assert_eq!(prepared.is_ok(), runs, "{prepared:?}");
    }
}

#[test]
fn a_program_behind_a_link_that_commands_could_replace_does_not_run_unconfined() {
    use std::os::unix::fs::symlink;

    let dir = tempfile::tempdir().unwrap();
    launcher(dir.path(), &[]);
    std::fs::create_dir(dir.path().join("mine")).unwrap();
    // direct -> bin/tool, chain -> mine/tool -> bin/tool
    symlink("bin/tool", dir.path().join("direct")).unwrap();
    symlink("mine/tool", dir.path().join("chain")).unwrap();
    symlink("../bin/tool", dir.path().join("mine/tool")).unwrap();
    for (program, runs) in [("direct", true), ("chain", false), ("mine/tool", false)] {
        let path = dir.path().join(program).display().to_string();
        let permissions = Permissions::none()
            .allow_write("mine")
            .allow_unconfined(&path);
        let checked = launcher_with(dir.path(), &permissions).check_unconfined(path.as_ref());
        assert_eq!(checked.is_ok(), runs, "{program}: {checked:?}");
    }
}

#[test]
fn a_relative_path_is_no_permission() {
    let permissions = Permissions::none().allow_run("bin/tool");
    let error = Launcher::new(&permissions, &Arc::default(), Path::new("/")).unwrap_err();
    assert!(error.to_string().contains("bin/tool"), "{error}");
}
