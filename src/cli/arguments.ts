/** Checks of arguments that need nothing else, so that the sidecar's bundle stays small. */
import { findNearest } from '../config/schema/did-you-mean.ts';
import { toErrorText, usageError } from '../core/errors.ts';

/** Describes an error of `parseArgs`, for the commands that do without commander. `names`: the options of the command. */
export function describeArgument(thrown: unknown, names: readonly string[]): string {
  const { code, message = '' } = thrown as NodeJS.ErrnoException;
  if (code === 'ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL') return 'name the config with --config FILE';
  const [, option] = code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION' ? (/'(.*?)'/.exec(message) ?? []) : [];
  if (option === undefined) return toErrorText(thrown);
  const nearest = findNearest(option.replace(/^-+/, ''), names);
  return `unknown option '${option}'${nearest === undefined ? '' : `. Did you mean --${nearest}?`}`;
}

/** One of the values that an option can have. */
export function toChoice<T extends string>(text: string, choices: readonly T[], option: string): T {
  const found = choices.find((choice) => choice === text);
  if (found !== undefined) return found;
  const nearest = findNearest(text, choices);
  const suggestion = nearest === undefined ? '' : `. Did you mean ${nearest}?`;
  throw usageError(`${option} ${text} is not one of ${choices.join(', ')}${suggestion}`);
}
