/** The native bcrypt, the only package that is not in the bundles. */
import { arch, platform } from 'node:process';
import { SidegateError, toErrorText } from '../core/errors.ts';
import type { Fault } from '../core/problem.ts';

/** The functions of the package. */
type Bcrypt = typeof import('@node-rs/bcrypt');

const HINT =
  `install @node-rs/bcrypt with its optional dependencies, which include the build for ${platform}-${arch}, ` +
  'or use the container image';

/** Loads the package. Throws a SidegateError that says how to install it. */
export async function loadBcrypt(): Promise<Bcrypt> {
  try {
    return await import('@node-rs/bcrypt');
  } catch (thrown) {
    const [reason = ''] = toErrorText(thrown).split('\n');
    throw new SidegateError('user', 'bcrypt_missing', `cannot load the native bcrypt: ${reason} (${HINT})`, { cause: thrown });
  }
}

/** Why passwords cannot be checked in this installation, or undefined. */
export async function findBcryptProblem(): Promise<Fault | undefined> {
  try {
    await loadBcrypt();
    return undefined;
  } catch {
    return { problem: 'passwords cannot be checked: the native bcrypt is missing or does not load', hint: HINT };
  }
}
