//! The fine-tuning protocol of 1909.08053 as data.

use serde::Serialize;

/// The paper's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Does the second sentence follow from the first, contradict it, or neither?
    Mnli,
    /// Do two questions ask the same?
    Qqp,
    /// Questions on SQuAD 1.1's passages.
    Squad1,
    /// Questions on SQuAD 2.0's passages, some without an answer.
    Squad2,
    /// Examination questions with four options.
    Race,
}

/// The paper's models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ModelSize {
    /// 336 million parameters.
    #[serde(rename = "336M")]
    M336,
    /// 1.3 billion.
    #[serde(rename = "1.3B")]
    B1_3,
    /// 3.9 billion.
    #[serde(rename = "3.9B")]
    B3_9,
}

/// How a task is trained and reported.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Protocol {
    /// The task.
    pub task: Task,
    /// The model that batch and learning rate were searched for.
    pub model: ModelSize,
    /// Examples a step; of RACE questions, each of four sequences.
    pub global_batch: usize,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Passes over the training set.
    pub epochs: usize,
    /// Where batch, learning rate and epochs come from.
    pub source: &'static str,
    /// Share of the steps over which the learning rate rises; it then falls linearly to 0.
    pub warmup_fraction: f64,
    /// Where the warm-up comes from.
    pub warmup_source: &'static str,
    /// Longest sequence.
    pub length: usize,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Largest norm of the gradient.
    pub clip: f64,
    /// Dropout everywhere, the head included.
    pub dropout: f64,
    /// Where length, weight decay, clip and dropout come from.
    pub recipe_source: &'static str,
    /// One run each; the median score on the development set is reported. The paper gives their number only.
    pub seeds: [u64; 5],
}

const TABLE: &str = "1909.08053, table 6";
const SCRIPTS: &str = "Megatron-LM, examples/finetune_{mnli,race}_distributed.sh";
const SCRIPTS_ELSEWHERE: &str = "not published for this task; as Megatron-LM's example scripts for MNLI and RACE";
const BERT: &str = "not published for this task; as BERT's SQuAD code";
const SEEDS: [u64; 5] = [1234, 1235, 1236, 1237, 1238];

impl Task {
    /// All of them, in the order of the paper's table.
    pub const ALL: [Task; 5] = [Task::Mnli, Task::Qqp, Task::Squad1, Task::Squad2, Task::Race];

    /// What the paper trained `model` with.
    pub fn protocol(self, model: ModelSize) -> Protocol {
        let (batches, rates, epochs) = self.table();
        let (warmup_fraction, warmup_source) = self.warmup();
        let size = match model {
            ModelSize::M336 => 0,
            ModelSize::B1_3 => 1,
            ModelSize::B3_9 => 2,
        };
        let is_script = matches!(self, Task::Mnli | Task::Race);
        Protocol {
            task: self,
            model,
            global_batch: batches[size],
            learning_rate: rates[size],
            epochs,
            source: TABLE,
            warmup_fraction,
            warmup_source,
            length: 512,
            weight_decay: 0.1,
            clip: 1.0,
            dropout: 0.1,
            recipe_source: if is_script { SCRIPTS } else { SCRIPTS_ELSEWHERE },
            seeds: SEEDS,
        }
    }

    /// Batch and learning rate of the three models, and epochs.
    fn table(self) -> ([usize; 3], [f64; 3], usize) {
        match self {
            Task::Mnli => ([128, 128, 128], [1e-5, 1e-5, 1e-5], 10),
            Task::Qqp => ([128, 128, 256], [5e-5, 3e-5, 4e-5], 12),
            Task::Squad1 => ([64, 48, 48], [3e-5, 3e-5, 1e-5], 2),
            Task::Squad2 => ([48, 64, 48], [3e-5, 3e-5, 1e-5], 2),
            Task::Race => ([32, 16, 32], [2e-5, 1e-5, 2e-5], 3),
        }
    }

    fn warmup(self) -> (f64, &'static str) {
        match self {
            Task::Mnli => (0.065, SCRIPTS),
            Task::Qqp => (0.065, SCRIPTS_ELSEWHERE),
            Task::Race => (0.06, SCRIPTS),
            Task::Squad1 | Task::Squad2 => (0.1, BERT),
        }
    }
}

impl Protocol {
    /// Steps of the whole training, and of these the warm-up's, over `examples`.
    ///
    /// Batches run on across the ends of epochs; what would not fill a last one is left out, but one step is
    /// always made.
    pub fn steps(&self, examples: usize) -> (u64, u64) {
        let steps = ((examples * self.epochs) / self.global_batch).max(1) as u64;
        (steps, (steps as f64 * self.warmup_fraction) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the paper's table 6: task, then batch and learning rate of the three sizes, then epochs.
    const TABLE_6: &str = "mnli 128 1e-5 128 1e-5 128 1e-5 10
                           qqp 128 5e-5 128 3e-5 256 4e-5 12
                           squad1 64 3e-5 48 3e-5 48 1e-5 2
                           squad2 48 3e-5 64 3e-5 48 1e-5 2
                           race 32 2e-5 16 1e-5 32 2e-5 3";

    #[test]
    fn the_table_is_the_papers() {
        let sizes = [ModelSize::M336, ModelSize::B1_3, ModelSize::B3_9];
        let row = |task: Task| {
            let cells = sizes.map(|size| {
                let protocol = task.protocol(size);
                format!("{} {:e}", protocol.global_batch, protocol.learning_rate)
            });
            let name = serde_json::to_value(task).unwrap();
            format!("{} {} {}", name.as_str().unwrap(), cells.join(" "), task.protocol(ModelSize::M336).epochs)
        };
        let found: Vec<String> = Task::ALL.into_iter().map(row).collect();
        let expected: Vec<&str> = TABLE_6.lines().map(str::trim).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn steps_cover_the_epochs() {
        let mnli = Task::Mnli.protocol(ModelSize::M336);
        // MNLI's 392,702 examples ten times over, in batches of 128.
        assert_eq!(mnli.steps(392_702), (30_679, 1_994));
        assert_eq!(mnli.steps(3), (1, 0));
    }
}
