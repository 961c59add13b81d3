"""One utterance's work: requirement, placement, the job machine, dispatch, sweep."""
