/** Describes the errors of `parseArgs`, for the commands that do without commander. */
import { findNearest } from '../config/schema/did-you-mean.ts';
import { toErrorText } from '../core/errors.ts';

/** `names`: the options of the command. */
export function describeArgument(thrown: unknown, names: readonly string[]): string {
  const { code, message = '' } = thrown as NodeJS.ErrnoException;
  if (code === 'ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL') return 'name the config with --config FILE';
  const [, option] = code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION' ? (/'(.*?)'/.exec(message) ?? []) : [];
  if (option === undefined) return toErrorText(thrown);
  const nearest = findNearest(option.replace(/^-+/, ''), names);
  return `unknown option '${option}'${nearest === undefined ? '' : `. Did you mean --${nearest}?`}`;
}
