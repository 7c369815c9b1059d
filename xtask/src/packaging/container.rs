//! A container's image with a shell and a package manager, for CI servers and for trying. The image for Kubernetes has
//! nothing but the program.

use super::{Description, HEAD};

pub(super) fn recipes(description: &Description) -> Vec<(String, String)> {
    vec![("container/Containerfile".to_owned(), containerfile(description))]
}

fn containerfile(description: &Description) -> String {
    format!(
        "# {HEAD}
# Build it beside released packages, for example those of `cargo xtask dist`:
#   podman build -t rtscope -f packaging/container/Containerfile target/dist
FROM debian:stable-slim

# More packages: qemu-system-x86 for the lab.
ARG PACKAGES=\"\"

LABEL org.opencontainers.image.title=\"rtscope\" \\
      org.opencontainers.image.description=\"{title}\" \\
      org.opencontainers.image.version=\"{version}\" \\
      org.opencontainers.image.url=\"{homepage}\" \\
      org.opencontainers.image.licenses=\"{licences}\"

RUN --mount=type=bind,target=/packages \\
    apt-get update && \\
    apt-get install --yes --no-install-recommends $PACKAGES \\
        \"/packages/rtscope_{version}_$(dpkg --print-architecture).deb\" && \\
    rm -rf /var/lib/apt/lists/*

# Real-time threads need the capabilities SYS_NICE and IPC_LOCK of whoever starts the container.
WORKDIR /records
ENTRYPOINT [\"rtscope\"]
CMD [\"--help\"]
",
        title = description.title(),
        version = description.version,
        homepage = description.homepage,
        licences = description.licences.join(" OR "),
    )
}
