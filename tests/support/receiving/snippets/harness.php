$works = 0;

function work(string $body): void
{
    global $works;
    $works += 1;
}

foreach (file('php://stdin') as $line) {
    $request = json_decode($line, true);
    $server = [];
    foreach ($request['headers'] as $name => $value) {
        $server['HTTP_' . strtoupper(strtr($name, '-', '_'))] = $value;
    }
    echo receive($server, base64_decode($request['body'])), ' ', $works, "\n";
}
