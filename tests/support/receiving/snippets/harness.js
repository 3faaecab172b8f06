let works = 0;

function work() {
  works += 1;
}

for (const line of require("node:fs").readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const request = JSON.parse(line);
  console.log(receive(request.headers, Buffer.from(request.body, "base64")), works);
}
