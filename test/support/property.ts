/** fast-check, with the seed of the environment: CI has one seed per commit, so that the same commit is tested with the same inputs. */
import fc from 'fast-check';

const seed = process.env['SIDEGATE_SEED'];
if (seed !== undefined) fc.configureGlobal({ seed: Number(seed) });

export { fc };
