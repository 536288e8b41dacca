mod descriptors;
mod life;
mod programs;
mod settings;
