//! What a launcher of many processes says of this one.

/// One process of several that a launcher started alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The launcher.
    pub by: &'static str,
    /// This process's number.
    pub rank: usize,
    /// How many there are; more than one.
    pub ranks: usize,
}

/// Launcher, and the variables in which it says how many there are and which this is. What
/// `srun` starts through PMI has Slurm's variables too. `SLURM_NTASKS` was rejected: a batch
/// script has it, which runs once.
const LAUNCHERS: [(&str, &str, &str); 4] = [
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("a PMI launcher", "PMI_SIZE", "PMI_RANK"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("torchrun", "WORLD_SIZE", "RANK"),
];

/// What the environment says; `None` where this is the only process.
pub fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    LAUNCHERS.iter().find_map(|&(by, ranks, rank)| {
        let (ranks, rank) = (number(ranks)?, number(rank)?);
        (ranks > 1).then_some(Launched { by, rank, ranks })
    })
}

/// [`launched`] of this process's own environment.
pub fn here() -> Option<Launched> {
    launched(|name| std::env::var(name).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(environment: &[(&str, &str)]) -> Option<Launched> {
        launched(|name| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_string()))
    }

    #[test]
    fn several_processes_are_told_from_one() {
        assert_eq!(of(&[]), None);
        let open_mpi = of(&[("OMPI_COMM_WORLD_SIZE", "8"), ("OMPI_COMM_WORLD_RANK", "3")]);
        assert_eq!(open_mpi, Some(Launched { by: "mpirun", rank: 3, ranks: 8 }));
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0")]), None);
        let slurm = of(&[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]);
        assert_eq!(slurm, Some(Launched { by: "srun", rank: 0, ranks: 4 }));
        assert_eq!(of(&[("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")]), None, "a batch script");
        let torch = of(&[("WORLD_SIZE", "8"), ("RANK", "7")]);
        assert_eq!(torch, Some(Launched { by: "torchrun", rank: 7, ranks: 8 }));
    }
}
