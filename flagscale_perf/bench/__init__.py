"""The fifth instrument: experiments that measure what a machine and a model can do, by themselves."""
