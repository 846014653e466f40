//! The files, sequences and scores of the tasks that encoders are fine-tuned on.

mod dataset;
mod fixture;
mod pairs;
mod race;
mod sequences;
mod spans;
mod squad_files;
mod squad_scores;
