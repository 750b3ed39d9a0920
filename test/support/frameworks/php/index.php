<?php
// A front controller with the routes of ../framework.ts, that parses the target as Slim and FastRoute do.
$path = rawurldecode(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '/');
$handler = match (true) {
    preg_match('#^/admin(/.*)?$#', $path) === 1 => 'admin',
    $path === '/hooks/billing' => 'billing',
    $path === '/account' => 'account',
    default => 'open',
};
header('Content-Type: application/json');
header('X-Version: ' . PHP_VERSION);
echo json_encode([
    'handler' => $handler,
    'path' => $path,
    'method' => $_SERVER['REQUEST_METHOD'],
    'host' => $_SERVER['HTTP_HOST'] ?? '',
], JSON_INVALID_UTF8_SUBSTITUTE);
