import { spawnSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { type CommandRequest, toCurl } from '../../../../src/admin/console/delivery-view.ts';

const REQUEST: CommandRequest = {
  method: 'POST',
  path: '/hooks/billing',
  headers: [
    { name: 'host', value: 'hooks.example' },
    { name: 'content-type', value: 'application/json' },
    { name: 'webhook-signature', value: null },
  ],
  hasBody: true,
  address: '127.0.0.1:8080',
};

/** The arguments that a shell passes to curl. */
function toArguments(command: string): string[] {
  const { stdout } = spawnSync('sh', ['-c', `curl() { printf '%s\\n' "$@"; }; ${command}`], { encoding: 'utf8' });
  return stdout.trimEnd().split('\n');
}

describe('the curl command of a request', () => {
  test('repeats it at the gate on this machine, without hidden headers', () => {
    expect(toArguments(toCurl(REQUEST))).toEqual([
      ...['--request', 'POST', '--connect-to', '::127.0.0.1:8080', '--header', 'content-type: application/json'],
      ...['--data-binary', '@body', 'http://hooks.example/hooks/billing'],
    ]);
  });

  test('never connects to a host that the client named', () => {
    const headers = [{ name: 'host', value: 'evil.example' }];
    expect(toArguments(toCurl({ ...REQUEST, headers }))).toContain('::127.0.0.1:8080');
    expect(toArguments(toCurl({ ...REQUEST, address: undefined }))).not.toContain('--connect-to');
  });

  test('is one request, although curl takes brackets and braces for patterns', () => {
    for (const path of ['/a[1-100000]', '/{a,b}']) {
      const shown = toArguments(toCurl({ ...REQUEST, path }));
      expect([shown.includes('--globoff'), shown.at(-1)]).toEqual([true, `http://hooks.example${path}`]);
    }
  });

  test('quotes what a client wrote', () => {
    const value = `'; touch x; echo "$(id)" \``;
    const shown = toArguments(toCurl({ ...REQUEST, path: `/${value}`, headers: [{ name: 'user-agent', value }] }));
    expect(shown).toContain(`user-agent: ${value}`);
    expect(shown.at(-1)).toBe(`http://localhost:8080/${value}`);
  });
});
