import { describe, expect, test } from 'vitest';
import { readBuildVersion, readConfigHash } from '../../../../src/kubernetes/doctor/read-cluster.ts';

const LARGEST = 8_388_608;
const line = 'sidegate_config_info{hash="0123456789abcdef"} 1';

describe('the hash of the config', () => {
  test.each([
    ['alone', line],
    ['among others', `# TYPE sidegate_config_info gauge\n${line}\nup 1\n`],
    ['with labels and a decimal', 'sidegate_config_info{pod="a",hash="0123456789abcdef",zone="b"} 1.0\n'],
  ])('is found %s', (_, text) => {
    expect(readConfigHash(text)).toBe('0123456789abcdef');
  });

  test.each([
    ['in nothing', ''],
    ['in another metric', 'other_info{hash="0123456789abcdef"} 1'],
    ['in a comment', `# ${line}`],
    ['across lines', 'sidegate_config_info{a="\n",hash="0123456789abcdef"} 1'],
    ['where the value is not 1', 'sidegate_config_info{hash="0123456789abcdef"} 0'],
    ['in another label', 'sidegate_config_info{xhash="0123456789abcdef"} 1'],
    ['in a line without end', `sidegate_config_info{a="${'x'.repeat(LARGEST)}",hash="01"} 1`],
    ['in starts without ends', 'sidegate_config_info{\n'.repeat(LARGEST / 22)],
    ['in labels without ends', 'sidegate_config_info{hash="0"hash="0"hash="0"\n'.repeat(LARGEST / 46)],
    ['in one line of them', `sidegate_config_info{${'hash="0"'.repeat(LARGEST / 8)}`],
  ])('is not searched for long %s', (_, text) => {
    expect(readConfigHash(text)).toBeUndefined();
  });
});

describe('the version of the program', () => {
  test('is read from its own metric', () => {
    expect(readBuildVersion('sidegate_build_info{version="1.2.0-rc.1+5",revision="unknown",node="24"} 1\n')).toBe('1.2.0-rc.1+5');
    expect(readBuildVersion('sidegate_build_info{node="24",version="1.0.0"} 1')).toBe('1.0.0');
  });

  test.each(['sidegate_build_info{version="a b"} 1', 'other_info{version="1.0.0"} 1', 'sidegate_build_info{xversion="1.0.0"} 1'])(
    'is not in %s',
    (text) => {
      expect(readBuildVersion(text)).toBeUndefined();
    },
  );
});
